"""Serializer fields that do not convert JSON values: "5" is not 5, and "yes" is not true."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from typing_extensions import override


class Text(serializers.CharField):
    """A string."""

    @override
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 200, "trim_whitespace": False, **options})

    @override
    def to_internal_value(self, data: Any) -> str:
        """Return the string. Any other value is an error."""
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class WholeNumber(serializers.IntegerField):
    """A whole number."""

    @override
    def to_internal_value(self, data: Any) -> int:
        """Return the number. Any other value is an error."""
        # In Python, True is an int.
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class Number(serializers.FloatField):
    """A finite number."""

    @override
    def to_internal_value(self, data: Any) -> float:
        """Return the number. Any other value is an error."""
        if not isinstance(data, int | float) or isinstance(data, bool):
            self.fail("invalid")
        try:
            # JSON has integers beyond the largest float.
            return float(data)
        except OverflowError:
            return self.fail("invalid")


class Truth(serializers.BooleanField):
    """True or false."""

    @override
    def to_internal_value(self, data: Any) -> bool:
        """Return the value. Any other value is an error."""
        if not isinstance(data, bool):
            self.fail("invalid", input=str(data)[:50])
        return data


class Document(serializers.DictField):
    """A JSON object whose content is validated elsewhere."""


class Named(serializers.SlugRelatedField):
    """Reference to another object by its slug."""

    def to_internal_value(self, data: object) -> object:
        """Return the object. Any value other than a known slug is an error."""
        if not isinstance(data, str) or len(data) > 64:
            self.fail("invalid")
        return super().to_internal_value(data)


class ModelShape(serializers.ModelSerializer):
    """Read-only form of a stored object. Relations appear as public ids."""

    @override
    def get_extra_kwargs(self) -> dict[str, dict[str, Any]]:
        """Return keyword arguments that make every field read-only."""
        return {name: {"read_only": True} for name in self.Meta.fields}

    @override
    def build_relational_field(self, field_name: str, relation_info: Any) -> tuple[Any, dict[str, Any]]:
        """Return the field of a relation."""
        public_id = getattr(relation_info.related_model, "public_id_field", "pk")
        if public_id == "pk":
            return super().build_relational_field(field_name, relation_info)
        return serializers.SlugRelatedField, {"slug_field": public_id}


class Input(serializers.Serializer):
    """A request body. An unknown member is an error."""

    @override
    def to_internal_value(self, data: Any) -> Any:
        """Return the values. Raises ValidationError with every problem."""
        # Django REST framework ignores them, and the value of a misspelled member would be lost in silence.
        unknown = [name for name in data if name not in self.fields] if isinstance(data, dict) else []
        problems = {name: [f"Is unknown; known are {', '.join(self.fields)}."] for name in unknown}
        try:
            values = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if isinstance(error.detail, dict):
                raise serializers.ValidationError({**error.detail, **problems}) from error
            raise
        if problems:
            raise serializers.ValidationError(problems)
        return values


class ChangeBody(Input):
    """The body of a change: the new values, and the reason for the audit."""

    why = Text(required=False, allow_blank=True, default="", help_text="Reason for the audit, at most 200 characters.")
