"""The laboratory: methods compared on the same folds and budgets, and the experiments of four papers rerun.

Nobody needs it to fit a model, and nothing outside it imports it: the command line looks it up when `compare` or
`reproduce` is asked for. Each folder is a paper, with its tables and figures as data.
"""
