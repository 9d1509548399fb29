"""The outside world behind four small interfaces: Network, Disk, Clock, Random; and their real versions."""
