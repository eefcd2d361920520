# Installs the library, then builds and runs a program that only knows find_package(Sluice).
file(REMOVE_RECURSE ${WORK})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD}/runtime --prefix ${WORK}/prefix COMMAND_ERROR_IS_FATAL ANY
                OUTPUT_QUIET)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
                        -DCMAKE_C_COMPILER=${C} -DCMAKE_CXX_COMPILER=${CXX} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
execute_process(COMMAND ${WORK}/build/user COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/build/user_cpp COMMAND_ERROR_IS_FATAL ANY)
