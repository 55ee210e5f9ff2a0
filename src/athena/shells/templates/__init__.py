"""Chat templates, rendered in a process of their own, and the formats that are learnt from them."""
