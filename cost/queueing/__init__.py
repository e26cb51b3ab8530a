"""Requests that wait for each other: a discrete-event simulation of engines that batch continuously."""
