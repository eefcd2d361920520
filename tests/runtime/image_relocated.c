// An address in data needs a relocation.
static int target = 3;
int *test_pointer = &target;
int test_read(void) { return *test_pointer; }
