// Every codec of the wire layer.
#pragma once

#include <holdfast/wire/codec.h>
#include <holdfast/wire/codec_containers.h>
#include <holdfast/wire/codec_time.h>
#include <holdfast/wire/fields.h>
