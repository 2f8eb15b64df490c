"""Which documents are held out of training, for evaluation."""

from __future__ import annotations

import hashlib

import numpy as np

TRAIN, HELDOUT = "train", "heldout"


def split_documents(
  num_documents: int, share: float, seed: int, kind: str
) -> dict[str, np.ndarray]:
  """Splits documents 0..num_documents - 1 at random.

  A document is held out if its hash is in the lowest `share` of all hashes, so
  that its side does not depend on the other documents; but each side gets at
  least the documents it needs, one, or two for the random pairs of "nsp".

  Args:
    num_documents: at least 1.
    share: of the documents to hold out, from 0 to below 1.
    seed: of the choice.
    kind: of the pairs, one of `sentence_pairs.KINDS`.

  Returns:
    "train" and, with a share above 0, "heldout": numbers <int64>, ascending.

  Raises:
    ValueError: there are too few documents.
  """
  least = 2 if kind == "nsp" else 1
  advice = "separate documents by blank lines"
  if num_documents < least:
    raise ValueError(
      "sentence_pair nsp takes random segments from another document, but "
      f"there is only one: {advice}, or use sop."
    )
  if not share:
    return {TRAIN: np.arange(num_documents)}
  if num_documents < 2 * least:
    raise ValueError(
      f"the number of documents is {num_documents}, too few to hold some of "
      f"them out: {advice}, or use --heldout_share=0."
    )
  hashes = np.array(
    [_hash(seed, number) for number in range(num_documents)], np.uint64
  )
  count = int((hashes < share * 2.0**64).sum())
  count = min(max(count, least), num_documents - least)
  order = np.argsort(hashes, kind="stable")
  return {TRAIN: np.sort(order[count:]), HELDOUT: np.sort(order[:count])}


def _hash(seed: int, number: int) -> int:
  """64 bits; not Python's `hash`, which may differ between versions."""
  text = f"{seed}:{number}".encode()
  return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
