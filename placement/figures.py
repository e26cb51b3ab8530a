"""Ranges of figures in results: plain numbers in the code, held when a file is read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0 + 1e-9)]
NotNegative = Annotated[float, Field(ge=0.0)]
