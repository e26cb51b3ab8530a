"""Documents of clusters as they read."""

from __future__ import annotations

from goldens import require_golden
from rackplan.report.cluster import traffic_doc
from topology.files.resolve import resolve_cluster
from topology.routes import Router, fair_s, pattern_traffic


def test_traffic_reads_as_it_did() -> None:
    cluster = resolve_cluster("gb200-nvl72@144")
    sent, router = pattern_traffic("all-to-all", 144, 1e9), Router(cluster)
    loads = router.loads(sent)
    require_golden("traffic", traffic_doc(cluster, sent, loads, fair_s(router, sent, loads)))
