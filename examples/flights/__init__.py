"""The main job on real data: 336,776 flights through a replicated log into a table, with faults, every row checked."""
