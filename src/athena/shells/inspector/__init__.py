"""The inspector's page: plain modules, one stylesheet and an index, served by the gateway or written into one file."""

from athena.shells.inspector.files import PATH, POLICY, PageAnswer, page_answer
from athena.shells.inspector.share import shared_page

__all__ = ["PATH", "POLICY", "PageAnswer", "page_answer", "shared_page"]
