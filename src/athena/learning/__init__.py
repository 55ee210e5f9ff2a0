"""A text format from a chat template: probe calls are rendered, and what the template writes around them is the format.

Pure: who renders is handed in (`athena.shells.templates` runs the template in a process of its own).
"""
