"""Why the server of a cell cannot run its workload: it has no slot or too little memory, or its clock forbids it."""

from typing import NamedTuple

from sweep.study.schema import Setting, no_slot, slots_of
from sweep.study.server_rules import why_none_fits
from sweep.study.timing import why_unmeasured, why_unserved


class Reason(NamedTuple):
    """Why a cell cannot run, and the key of the study that it comes from."""

    key: str
    text: str


def why_not(setting: Setting, *, served: bool, timed: bool) -> Reason | None:
    """Why no request can ever run here, None if some can. served, timed : what the study of the cell runs on."""
    if not slots_of(setting.server):
        return Reason("server.slots", no_slot(setting.server))
    if served and (text := why_none_fits(setting)):
        return Reason("server.kv", text)
    if timed and (text := why_unserved(setting, served=served)):
        return Reason("workload.arrivals", text)
    if timed and (text := why_unmeasured(setting)):
        return Reason("server.step", text)
    return None
