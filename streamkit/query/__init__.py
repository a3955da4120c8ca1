# SPDX-License-Identifier: Apache-2.0
"""Questions to the data set of `batch`, and exports of the frames that answer them.

    data set ─► index ─► database ─► result ─► selected frames ─► images, annotations
                  └ all tables in one file, kept up to date

A query reads; nothing here changes the tables of a data set.
"""
