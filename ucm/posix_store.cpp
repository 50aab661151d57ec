// The plug-in that takes the place of the C++ pipeline's libposixstore.so: the pipeline loads it by
// file name and calls this maker.
#include <kvpath/ucm_store_v1.hpp>

extern "C" __attribute__((visibility("default"))) UC::StoreV1 *MakePosixStore()
{
    return new kvpath::UcmStoreV1;
}
