"""Tables that a streaming query keeps up to date: Delta, Iceberg, and folders of Parquet (Part P).

::

    executors   rows of a batch ─► Parquet files, of which no reader knows
    driver      files + (application, query, batch) ─► one commit of the table

A batch that comes again finds its number in the table, and is skipped; files that no commit lists are swept.
"""
