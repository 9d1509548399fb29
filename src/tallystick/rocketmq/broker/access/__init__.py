"""Who may do what at a broker: users, their policies, and the check of each request before it does anything."""
