"""The inspector's page: plain modules, one stylesheet and an index in `page`, served by the gateway or written into one file."""

from athena.shells.inspector.files import POLICY, page_file
from athena.shells.inspector.share import shared_page

__all__ = ["POLICY", "page_file", "shared_page"]
