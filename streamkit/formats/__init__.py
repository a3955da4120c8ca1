"""The record as other formats have it: JSON Schema, Avro and Protobuf, all made from one description.

description ──► json_schema, avro, protobuf     what `run.py schema --records` prints
            ──► shaping ──► avro, protobuf      from a record to bytes and back
"""
