"""The report: one HTML file that needs no network, from a plan or a comparison."""
