"""What is priced: workload, layout, machine, and the deployment that joins them."""
