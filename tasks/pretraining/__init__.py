"""ALBERT's pretraining: masked LM and sentence order.

It has the task, the model with two heads, the recipes, and the serving of a
pretrained model. `data` builds the records.
"""
