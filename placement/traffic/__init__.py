"""Experts placed by what tokens choose together: few domains, then few nodes a token, under a limit of the loads."""
