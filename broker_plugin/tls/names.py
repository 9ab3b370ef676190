"""What a certificate says of its owner; readers of the log go by it too (``recovery.certificate_names``)."""

from __future__ import annotations

from recovery.certificate_names import CLIENT as CLIENT
from recovery.certificate_names import KINDS as KINDS
from recovery.certificate_names import NODE as NODE
from recovery.certificate_names import READER as READER
from recovery.certificate_names import SCHEME as SCHEME
from recovery.certificate_names import CertificateName as CertificateName
from recovery.certificate_names import common_name as common_name
from recovery.certificate_names import name_of_peer as name_of_peer
from recovery.certificate_names import name_of_uris as name_of_uris
from recovery.certificate_names import names_a_client as names_a_client
from recovery.certificate_names import node_shown as node_shown
