"""Requests that were on their way when their tenant was erased."""

from __future__ import annotations

import time

import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.routing.refused_jobs import RefusedJobs
from outrider.mesh.bus import Bus
from outrider.mesh.errors import PermissionDenied
from outrider.v1.sampling_pb2 import SamplingParams, Speculation


def job(tenant: str, begun: float) -> Job:
    return Job("r", ServedModel("m", "v", 9), [1], SamplingParams(), Speculation(), Caller(tenant), begun=begun)


def test_a_job_that_began_before_its_tenant_was_erased_is_refused_and_a_later_one_is_not(bus: Bus) -> None:
    refused = RefusedJobs(bus)
    refused.check(job("t", 0.0), begun=True)
    before = time.monotonic()
    refused.erase("t")
    with pytest.raises(PermissionDenied, match="the tenant was erased"):
        refused.check(job("t", before), begun=True)
    refused.check(job("other", before), begun=True)
    refused.check(job("t", time.monotonic() + 1.0), begun=True)
