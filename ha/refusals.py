"""Why the cluster does not do at the moment what an operator asks for at a node, in one sentence each."""

from __future__ import annotations

NO_PRIMARY = "this node knows no primary at the moment; ask again"
NOT_ACTIVE = "the primary does not serve at the moment; ask again"
OUTCOME_UNKNOWN = "the primary has changed meanwhile: whether this was done is not known here; look at it and ask again"
