"""What an operator asks and orders, one typed function each; the doors (terminal, browser) only show results."""
