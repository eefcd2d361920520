#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Each gives "" or what went wrong.
const char *c_api_train(const char *plan, const char *folder);
const char *c_api_describe(const char *plan);
const char *c_api_misuse(const char *plan);
const char *c_api_accumulate(const char *plan);
const char *c_api_host(const char *plan);
const char *c_api_parameters(const char *plan);

#ifdef __cplusplus
}
#endif
