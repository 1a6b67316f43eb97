"""The examination model of the doubly robust paper (§6.1.1): how probable it is that a user looked at a document.

`examine.examine` trains it on the display times in a log, `model.ExaminationModel.estimate` applies it.
"""
