"""What any distributed driver needs: which part runs where, whose record is whose, how records travel."""
