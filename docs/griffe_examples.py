"""Shows the section ``Example:`` of a docstring as code, which Griffe does for ``Examples:``."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Renames sections."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Look at one object."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE
            )
