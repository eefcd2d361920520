"""Columns of a table of applicants as the numbers a network reads, by a transform that is fitted once and saved.

The file (JSON) has a version, the names and order of the columns, mean and deviation of numbers and the values of categories. A table
whose columns differ from it, or one with a value that the category did not have, is refused: a network would read it without a word.
"""
import csv
import json

VERSION = 1


class Refused(Exception):
    pass


def read_csv(path):
    """Rows as dictionaries of text."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_arff(path):
    """Rows as dictionaries of text, and the names of columns that are numbers."""
    names, numbers, rows, in_data = [], [], [], False
    for line in open(path):
        line = line.strip()
        if not line or line.startswith("%"):
            continue
        if in_data:
            values = next(csv.reader([line], quotechar="'", skipinitialspace=True))
            rows.append({name: value.strip() for name, value in zip(names, values)})
        elif line.lower().startswith("@attribute"):
            name, kind = line.split(None, 1)[1].split(None, 1)
            name = name.strip("'")
            names.append(name)
            if kind.strip().lower() in ("real", "numeric", "integer"):
                numbers.append(name)
        elif line.lower().startswith("@data"):
            in_data = True
    return rows, numbers


def fit(rows, numbers, categories):
    """On the rows that are known when the first model is made."""
    columns = []
    for name in numbers:
        values = [float(row[name]) for row in rows]
        mean = sum(values) / len(values)
        deviation = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
        columns.append({"name": name, "kind": "number", "mean": mean, "deviation": deviation or 1.0})
    for name in categories:
        columns.append({"name": name, "kind": "category", "values": sorted({row[name] for row in rows})})
    return {"version": VERSION, "columns": columns}


def width(transform):
    return sum(1 if column["kind"] == "number" else len(column["values"]) for column in transform["columns"])


def check(transform, names):
    """The table has the transform's columns, all of them and no others."""
    if transform.get("version") != VERSION:
        raise Refused(f"the transform has version {transform.get('version')}, expected {VERSION}: fit it again")
    wanted = [column["name"] for column in transform["columns"]]
    missing, other = [n for n in wanted if n not in names], [n for n in names if n not in wanted]
    if missing or other:
        raise Refused("columns differ from the saved transform:" + "".join(f" '{n}' is missing;" for n in missing) +
                      "".join(f" '{n}' is not in it;" for n in other) + " prepare the table as it was, or fit a new transform and model")


def apply(transform, rows, names):
    """Numbers by mean and deviation, categories as one column per value."""
    import numpy

    check(transform, names)
    result = numpy.zeros((len(rows), width(transform)), numpy.float32)
    at = 0
    for column in transform["columns"]:
        name = column["name"]
        if column["kind"] == "number":
            for i, row in enumerate(rows):
                result[i, at] = (float(row[name]) - column["mean"]) / column["deviation"]
            at += 1
            continue
        place = {value: k for k, value in enumerate(column["values"])}
        for i, row in enumerate(rows):
            if row[name] not in place:
                raise Refused(f"row {i + 1} has '{row[name]}' in '{name}', a value the saved transform has not seen "
                              f"(it knows {', '.join(column['values'])})")
            result[i, at + place[row[name]]] = 1
        at += len(place)
    return result


def save(transform, path):
    with open(path, "w") as file:
        json.dump(transform, file, indent=1)


def load(path):
    with open(path) as file:
        return json.load(file)
