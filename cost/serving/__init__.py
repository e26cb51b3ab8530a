"""Requests in service: pools that prefill and decode, what units of a machine give, and how many serve a demand."""
