"""The file format of recorded cases: messages, each after its length as a varint; a case is a ModelProto, then a GraphProto
whose initializers are the operands and the expected results."""


def varint(number):
    data = bytearray()
    while True:
        data.append((number & 127) | (128 if number > 127 else 0))
        number >>= 7
        if number == 0:
            return bytes(data)


def delimited(message):
    data = message.SerializeToString()
    return varint(len(data)) + data


def case_bytes(model, data):
    return delimited(model) + delimited(data)


class VectorFile:
    """Writes cases to a file and counts them."""

    def __init__(self, path):
        self.path, self.count, self.size = path, 0, 0

    def __enter__(self):
        self.file = open(self.path, "wb")
        return self

    def __exit__(self, *problem):
        self.file.close()

    def write(self, case):
        self.file.write(case)
        self.count += 1
        self.size += len(case)

    def summary(self, of):
        return f"{self.count} cases, {self.size} bytes" + (f", {of}" if of else "")
