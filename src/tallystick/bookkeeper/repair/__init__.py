"""What bookies lost is made good: the auditor and the replicator (the original's AutoRecovery), and a bookie that
fetches what it lacks itself."""
