"""The shipped contract is a part of the fixed one, under the fixed names, types and numbers."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    MethodDescriptor,
)

import dragoman.v1
from dragoman.v1 import translation_pb2

FIXED = Path(__file__).parent / "contract.txt"
LATER = "later: "
SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_STRING: "string",
}


def describe(contract: FileDescriptor) -> Iterator[str]:
    """One line for each method, field and enum value of a contract."""
    for service in contract.services_by_name.values():
        yield from (describe_method(method) for method in service.methods)
    for message in contract.message_types_by_name.values():
        yield from (describe_field(message, field) for field in message.fields)
    for enum in contract.enum_types_by_name.values():
        yield from describe_enum(enum)


def describe_method(method: MethodDescriptor) -> str:
    request = "stream " * method.client_streaming + method.input_type.name
    response = "stream " * method.server_streaming + method.output_type.name
    return f"{method.containing_service.name}.{method.name}: {request} -> {response}"


def describe_field(message: Descriptor, field: FieldDescriptor) -> str:
    label = "repeated " if field.is_repeated else ""
    oneof = field.containing_oneof
    if oneof is not None:
        # protoc models `optional` as a oneof of one, named after its field.
        label = "optional " if oneof.name == f"_{field.name}" else f"oneof {oneof.name} "
    named = field.message_type or field.enum_type
    kind = named.name if named is not None else SCALARS[field.type]
    return f"{message.name}.{field.name} = {field.number}: {label}{kind}"


def describe_enum(enum: EnumDescriptor) -> Iterator[str]:
    return (f"{enum.name}.{value.name} = {value.number}" for value in enum.values)


def read_fixed() -> list[str]:
    return [line for line in FIXED.read_text().splitlines() if line and not line.startswith("#")]


def test_shipped_contract_is_the_fixed_one_without_what_comes_later() -> None:
    assert sorted(describe(translation_pb2.DESCRIPTOR)) == sorted(
        line for line in read_fixed() if not line.startswith(LATER)
    )


def test_no_number_or_name_is_fixed_twice() -> None:
    places = [line.removeprefix(LATER).split(":")[0] for line in read_fixed()]
    numbers = [(place.split(".")[0], place.split(" = ")[1]) for place in places if " = " in place]
    names = [place.split(" = ")[0] for place in places]

    assert len(set(numbers)) == len(numbers)
    assert len(set(names)) == len(names)


def test_package_exports_every_message_enum_and_service() -> None:
    contract = translation_pb2.DESCRIPTOR
    expected = {*contract.message_types_by_name, *contract.enum_types_by_name}
    for service in contract.services_by_name:
        expected |= {f"{service}Stub", f"{service}Servicer", f"add_{service}Servicer_to_server"}

    assert set(dragoman.v1.__all__) == expected
    assert all(hasattr(dragoman.v1, name) for name in expected)
