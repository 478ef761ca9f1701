// The fake device of the C++ tests as a library that Python can load.
#include <holdfast/tensor/fake_device_test_support.h>
