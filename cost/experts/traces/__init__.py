"""What serving engines recorded: opened without running anything in it, read in pieces.

Every reader takes a path and what the model needs, and gives :class:`cost.experts.traces.counts.TokenCounts` or
:class:`cost.experts.traces.routing.RoutedTokens`; what it cannot use, it refuses with an ``InputError`` of one line.
"""
