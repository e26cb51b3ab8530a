"""Plug-ins by which engines load the balancers; without ``RACKPLAN_BALANCER=1`` they do nothing.

vLLM runs every entry point of ``vllm.general_plugins`` in each of its processes, SGLang those of
``sglang.srt.plugins``; so nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import logging

from rackplan.balancers.settings import SWITCH, Settings, require_known, settings, switched_on
from topology.base.errors import InputError


def vllm() -> None:
    """Replace vLLM's default policy, and all policies of vllm-ascend if installed, by rackplan's.

    Raises
    ------
    ValueError
        If an option cannot be used: the engine does not start.
    """
    try:
        options = _options()
    except InputError as error:
        message = f"rackplan: {error}"
        raise ValueError(message) from None
    if options is None:
        return
    from vllm.distributed.eplb import policy

    from rackplan.balancers.vllm import RackplanEplbPolicy

    policies, home = policy.EPLB_POLICIES, {"__module__": RackplanEplbPolicy.__module__}
    # the option that picks a policy takes no name but "default", and async mode refuses any other
    if not issubclass(policies["default"], RackplanEplbPolicy):
        policies["default"] = type(
            "RackplanEplbPolicy", (RackplanEplbPolicy, policy.AbstractEplbPolicy), home
        )
    _say("vllm.rackplan", "vLLM and vllm-ascend" if _ascend() else "vLLM", options)


def sglang() -> None:
    """Replace SGLang's balancing function by rackplan's for every algorithm.

    Raises
    ------
    SystemExit
        If an option cannot be used: SGLang goes on after any other error of a plug-in, with its own balancer.
    """
    try:
        options = _options()
    except InputError as error:
        raise SystemExit(f"rackplan: {error}") from None
    if options is None:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from rackplan.balancers.sglang import rebalance_experts

    HookRegistry.register(
        "sglang.srt.eplb.eplb_algorithms.rebalance_experts", rebalance_experts, HookType.REPLACE
    )
    _say("sglang.rackplan", "SGLang", options)


def _options() -> Settings | None:
    """Return the settings where the plug-ins are switched on, checked as far as can be before the first window."""
    if not switched_on():
        return None
    require_known()
    options = settings()
    if options.scenarios or options.plan:
        from rackplan.balancers.stored import read_stored

        read_stored(options.scenarios, options.plan)
    return options


def _ascend() -> bool:
    """Put our policy in place of every number of vllm-ascend's factory; return whether there is one."""
    try:
        from vllm_ascend.eplb.core.policy.policy_factory import PolicyFactory
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("vllm_ascend"):  # not installed, or a version without a factory
            return False
        raise

    from rackplan.balancers.vllm_ascend import RackplanPolicy

    def generate_policy(policy_type: int) -> RackplanPolicy:
        del policy_type
        return RackplanPolicy()

    PolicyFactory.generate_policy = staticmethod(generate_policy)
    return True


def _say(logger: str, engine: str, setup: Settings) -> None:
    # engines show what their own loggers say, and the warnings of others
    logging.getLogger(logger).info("rackplan balances experts for %s (%s=1): %s", engine, SWITCH, setup.words)
