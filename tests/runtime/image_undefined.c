// Needs a function from outside.
extern void helper(void);
void test_calls_out(void) { helper(); }
