"""Routes and link loads: any traffic between GPUs, on every link of the graph.

``Router(cluster).loads(traffic)`` routes as the fabrics do: in a domain over all switch chips, on the direct
link of a mesh, in dimension order on a grid; between domains over all fewest-hop paths, on rails after a hop inside
the domain.
"""

from topology.routes.collectives import ALGORITHMS, COLLECTIVES, bus_factor, collective_traffic
from topology.routes.demand import Pairs
from topology.routes.fair_sharing import MOST_CLASSES, FairTime, check_pairs, fair_s
from topology.routes.link_loads import (
    Link,
    LinkGroup,
    LinkLoads,
    Router,
    TierLoad,
    uniform_bytes_per_s,
)
from topology.routes.rank_matrix import RankMatrix, rank_matrix
from topology.routes.traffic import (
    ONE_TO_ONE,
    PATTERNS,
    Traffic,
    pattern_traffic,
    read_traffic,
    traffic_matrix,
)

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "MOST_CLASSES",
    "ONE_TO_ONE",
    "PATTERNS",
    "FairTime",
    "Link",
    "LinkGroup",
    "LinkLoads",
    "Pairs",
    "RankMatrix",
    "Router",
    "TierLoad",
    "Traffic",
    "bus_factor",
    "check_pairs",
    "collective_traffic",
    "fair_s",
    "pattern_traffic",
    "rank_matrix",
    "read_traffic",
    "traffic_matrix",
    "uniform_bytes_per_s",
]
