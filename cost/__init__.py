"""What a step costs: the arithmetic of models, terms of a step, memory, and the score of a placement."""

from __future__ import annotations

from cost.config.build import model_from_config
from cost.resolve import model_names, published, resolve_model
from topology.old_names import register as _register_old_names

__all__ = ["model_from_config", "model_names", "published", "resolve_model"]

_register_old_names(
    modules={
        "cost.capacity": "cost.memory",
        "cost.economics": "cost",
        "cost.economics.activations": "cost.activations",
        "cost.economics.bubble": "cost.lecture",
        "cost.economics.cache_tiers": "cost.prices",
        "cost.economics.fast_mode": "cost.lecture",
        "cost.economics.lifetime": "cost.lecture",
        "cost.economics.phases": "cost.lecture",
        "cost.economics.price_step": "cost.lecture",
        "cost.economics.prices": "cost.prices",
        "cost.economics.roofline": "cost.lecture",
        "cost.efficiency": "cost.machine",
        "cost.expert_use": "cost.dispatch",
        "cost.load_files": "cost.loads",
        "cost.measured": "cost.validation",
        "cost.measured.predict": "cost.validation.predict",
        "cost.measured.read": "cost.validation.read",
        "cost.measured.statistics": "cost.validation.statistics",
        "cost.rate_matching": "cost.pools",
        "cost.rates": "cost.machine",
        "cost.setting": "cost.deployment",
        "cost.shape": "cost.workload",
        "cost.split": "cost.dispatch",
        "cost.sweep": "cost.layouts",
        "cost.terms.alltoall_placed": "cost.terms.placed_volumes",
        "cost.transfer": "cost.cache_path",
    },
    names={
        "cost.economics.cache_tiers.hbm_tier": "cost.lecture.hbm_tier",
        "cost.economics.cache_tiers.tier_spans": "cost.lecture.tier_spans",
        "cost.rate_matching.FetchOrRecompute": "cost.cache_path.FetchOrRecompute",
        "cost.rate_matching.fetch_or_recompute": "cost.cache_path.fetch_or_recompute",
        "cost.setting.Setting": "cost.deployment.Deployment",
        "cost.split.SPLITS": "cost.dispatch.DISPATCH_POLICIES",
        "cost.split.Split": "cost.dispatch.DispatchPolicy",
        "cost.split.require_split": "cost.dispatch.require_policy",
    },
    adapters={},
)
