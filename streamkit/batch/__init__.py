# SPDX-License-Identifier: Apache-2.0
"""Archives: processes many files with warm pipelines in several processes, into one crash-safe data set.

    inputs ─► work ─► manager ─► worker pool ─► a file's parts of the data set ─► its row, by the manager
               └ without the files that the folder has as done

`job.py` has the values that these pass to each other.
"""
