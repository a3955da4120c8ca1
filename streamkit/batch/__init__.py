"""Archives: many files, through warm pipelines in several processes, into one data set that survives a crash.

    inputs ─► work ─► manager ─► crew of workers ─► a file's parts of the data set ─► its row, by the manager
               └ less what the folder says is done

`job.py` has the values that these hand each other.
"""
