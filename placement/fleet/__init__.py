"""Fleets: replicas of different shapes placed on one cluster."""
