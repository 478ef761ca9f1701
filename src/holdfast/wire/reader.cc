#include <holdfast/wire/reader.h>

#include <cfloat>
#include <cmath>

namespace holdfast::wire {

namespace {

std::string_view name_of(Type type) {
  switch (type) {
    case Type::nil: return "nil";
    case Type::boolean: return "a bool";
    case Type::integer: return "an integer";
    case Type::floating: return "a float";
    case Type::string: return "a string";
    case Type::binary: return "bytes";
    case Type::array: return "an array";
    case Type::map: return "a map";
    case Type::extension: return "an extension";
    case Type::invalid: return "the byte 0xc1, which no value begins with";
    case Type::end: return "the end";
  }
  return "an unknown type";
}

Type type_of(uint8_t tag) {
  if (tag < 0x80 || tag >= 0xe0) return Type::integer;
  if (tag < 0x90) return Type::map;
  if (tag < 0xa0) return Type::array;
  if (tag < 0xc0) return Type::string;
  // 0xc0 to 0xdf, each on its own.
  static constexpr Type kTypes[32] = {Type::nil,       Type::invalid,   Type::boolean,   Type::boolean,    // c0
                                      Type::binary,    Type::binary,    Type::binary,    Type::extension,  // c4
                                      Type::extension, Type::extension, Type::floating,  Type::floating,   // c8
                                      Type::integer,   Type::integer,   Type::integer,   Type::integer,    // cc
                                      Type::integer,   Type::integer,   Type::integer,   Type::integer,    // d0
                                      Type::extension, Type::extension, Type::extension, Type::extension,  // d4
                                      Type::extension, Type::string,    Type::string,    Type::string,     // d8
                                      Type::array,     Type::array,     Type::map,       Type::map};       // dc
  return kTypes[tag - 0xc0];
}

// Whether a float with `digits` bits of mantissa holds this integer exactly.
bool is_exact(uint64_t magnitude, int digits) {
  return magnitude == 0 || static_cast<int>(std::bit_width(magnitude)) - std::countr_zero(magnitude) <= digits;
}

uint64_t magnitude_of(bool negative, uint64_t bits) { return negative ? ~bits + 1 : bits; }

std::string text_of(bool negative, uint64_t bits) {
  return negative ? std::to_string(static_cast<int64_t>(bits)) : std::to_string(bits);
}

}  // namespace

void Reader::fail(std::string_view text) {
  if (failed_) return;
  failed_ = true;
  error_ = "at byte " + std::to_string(value_ - begin_) + ": ";
  error_ += text;
  end_ = at_;
}

void Reader::mismatch(std::string_view expected) {
  if (failed_) return;
  value_ = at_;
  fail("expected " + std::string(expected) + ", found " + std::string(name_of(peek())));
}

void Reader::truncated(std::string_view what, uint64_t bytes) {
  if (failed_) return;
  fail("expected " + std::string(what) + ", which needs " + std::to_string(bytes) + " bytes more, found " +
       std::to_string(remaining()));
}

void Reader::too_deep() { fail("the value nests deeper than " + std::to_string(kDepthMax) + " levels"); }

Type Reader::peek() const { return at_ == end_ ? Type::end : type_of(*at_); }

bool Reader::any_integer(std::string_view expected, Integer& out) {
  if (peek() != Type::integer) {
    mismatch(expected);
    return false;
  }
  value_ = at_++;
  const uint8_t tag = *value_;
  const bool short_form = tag < 0x80 || tag >= 0xe0;
  const size_t width = short_form ? 0 : size_t{1} << (tag & 3);  // cc to cf and d0 to d3: 1, 2, 4, 8 bytes
  if (remaining() < width) {
    truncated(expected, width);
    return false;
  }
  const uint8_t* bytes = at_;
  at_ += width;
  int64_t value = 0;
  switch (tag) {
    case 0xcc: out = {.negative = false, .bits = *bytes}; return true;
    case 0xcd: out = {.negative = false, .bits = load_big_endian<uint16_t>(bytes)}; return true;
    case 0xce: out = {.negative = false, .bits = load_big_endian<uint32_t>(bytes)}; return true;
    case 0xcf: out = {.negative = false, .bits = load_big_endian<uint64_t>(bytes)}; return true;
    case 0xd0: value = static_cast<int8_t>(*bytes); break;
    case 0xd1: value = static_cast<int16_t>(load_big_endian<uint16_t>(bytes)); break;
    case 0xd2: value = static_cast<int32_t>(load_big_endian<uint32_t>(bytes)); break;
    case 0xd3: value = static_cast<int64_t>(load_big_endian<uint64_t>(bytes)); break;
    default: value = static_cast<int8_t>(tag); break;
  }
  out = {.negative = value < 0, .bits = static_cast<uint64_t>(value)};
  return true;
}

int64_t Reader::integer_long_form() {
  Integer found;
  if (!any_integer("an integer", found)) return 0;
  if (!found.negative && found.bits > uint64_t{INT64_MAX}) {
    fail("expected an integer up to " + std::to_string(INT64_MAX) + ", found " + text_of(false, found.bits));
    return 0;
  }
  return static_cast<int64_t>(found.bits);
}

uint64_t Reader::unsigned_long_form() {
  Integer found;
  if (!any_integer("an unsigned integer", found)) return 0;
  if (found.negative) {
    fail("expected an unsigned integer, found " + text_of(true, found.bits));
    return 0;
  }
  return found.bits;
}

double Reader::float64_other_form() {
  if (peek() == Type::integer) {
    Integer found;
    if (!any_integer("a float64", found)) return 0;
    const uint64_t magnitude = magnitude_of(found.negative, found.bits);
    if (!is_exact(magnitude, DBL_MANT_DIG)) {
      fail("expected a float64, found the integer " + text_of(found.negative, found.bits) +
           ", which it cannot hold exactly");
      return 0;
    }
    return found.negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
  }
  if (peek() != Type::floating) {
    mismatch("a float64");
    return 0;
  }
  value_ = at_++;
  const size_t width = *value_ == 0xca ? 4 : 8;
  if (remaining() < width) {
    truncated("a float", width);
    return 0;
  }
  const uint8_t* bytes = at_;
  at_ += width;
  if (width == 4) return std::bit_cast<float>(load_big_endian<uint32_t>(bytes));
  return std::bit_cast<double>(load_big_endian<uint64_t>(bytes));
}

float Reader::float32_other_form() {
  if (peek() == Type::integer) {
    Integer found;
    if (!any_integer("a float32", found)) return 0;
    const uint64_t magnitude = magnitude_of(found.negative, found.bits);
    if (!is_exact(magnitude, FLT_MANT_DIG)) {
      fail("expected a float32, found the integer " + text_of(found.negative, found.bits) +
           ", which it cannot hold exactly");
      return 0;
    }
    return found.negative ? -static_cast<float>(magnitude) : static_cast<float>(magnitude);
  }
  if (peek() != Type::floating) {
    mismatch("a float32");
    return 0;
  }
  const double value = float64_other_form();
  if (std::isfinite(value) && std::fabs(value) > FLT_MAX) {
    fail("expected a float32, found " + std::to_string(value) + ", which is out of its range");
    return 0;
  }
  return static_cast<float>(value);
}

// Reads the tag and a length of `width` bytes behind it (0: the caller has the length from the tag).
bool Reader::length(size_t width, std::string_view what, uint32_t& out) {
  value_ = at_++;
  if (remaining() < width) {
    truncated(what, width);
    return false;
  }
  switch (width) {
    case 0: break;
    case 1: out = *at_; break;
    case 2: out = load_big_endian<uint16_t>(at_); break;
    default: out = load_big_endian<uint32_t>(at_); break;
  }
  at_ += width;
  return true;
}

ByteView Reader::payload(std::string_view what, uint64_t bytes) {
  if (remaining() < bytes) {
    truncated(what, bytes);
    return {};
  }
  const uint8_t* start = at_;
  at_ += bytes;
  return {start, static_cast<size_t>(bytes)};
}

std::string_view Reader::long_string() {
  if (peek() != Type::string) {
    mismatch("a string");
    return {};
  }
  const uint8_t tag = *at_;
  uint32_t bytes = tag & 0x1f;
  const size_t width = tag < 0xc0 ? 0 : size_t{1} << (tag - 0xd9);
  if (!length(width, "a string", bytes)) return {};
  const ByteView text = payload("a string", bytes);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

ByteView Reader::binary() {
  if (peek() != Type::binary) {
    mismatch("bytes");
    return {};
  }
  uint32_t bytes = 0;
  if (!length(size_t{1} << (*at_ - 0xc4), "bytes", bytes)) return {};
  return payload("bytes", bytes);
}

Extension Reader::extension() {
  if (peek() != Type::extension) {
    mismatch("an extension");
    return {};
  }
  const uint8_t tag = *at_;
  const bool fixed = tag >= 0xd4;  // d4 to d8: 1, 2, 4, 8, 16 bytes
  uint32_t bytes = fixed ? uint32_t{1} << (tag - 0xd4) : 0;
  if (!length(fixed ? 0 : size_t{1} << (tag - 0xc7), "an extension", bytes)) return {};
  const ByteView all = payload("an extension", uint64_t{1} + bytes);
  if (all.empty()) return {};
  return {.type = static_cast<int8_t>(all[0]), .bytes = all.subspan(1)};
}

ByteView Reader::extension(int8_t expected_type) {
  const Extension found = extension();
  if (failed_) return {};
  if (found.type != expected_type) {
    fail("expected an extension of type " + std::to_string(expected_type) + ", found one of type " +
         std::to_string(found.type));
    return {};
  }
  return found.bytes;
}

bool Reader::next_is_extension(int8_t type) const {
  if (peek() != Type::extension) return false;
  const size_t type_at = *at_ >= 0xd4 ? 1 : 1 + (size_t{1} << (*at_ - 0xc7));
  return remaining() > type_at && static_cast<int8_t>(at_[type_at]) == type;
}

bool Reader::header(uint8_t fixed_tag, uint8_t tag16, uint32_t bytes_each, std::string_view what, uint32_t& out) {
  const uint8_t tag = *at_;
  uint32_t count = tag & 0x0f;
  const size_t width = (tag & 0xf0) == fixed_tag ? 0 : (tag == tag16 ? 2 : 4);
  if (!length(width, what, count)) return false;
  const uint64_t bytes = uint64_t{count} * bytes_each;
  if (bytes > remaining()) {
    truncated(std::string(what) + " of " + std::to_string(count), bytes);
    return false;
  }
  out = count;
  return true;
}

uint32_t Reader::long_array_header() {
  uint32_t count = 0;
  if (peek() != Type::array) {
    mismatch("an array");
    return 0;
  }
  return header(0x90, 0xdc, 1, "an array", count) ? count : 0;
}

bool Reader::array_header_of(uint32_t expected, std::string_view what) {
  const uint32_t count = array_header();
  if (count != expected) {
    fail("expected an array of " + std::to_string(expected) + " for " + std::string(what) + ", found " +
         std::to_string(count));
  }
  return ok();
}

uint32_t Reader::map_header() {
  uint32_t count = 0;
  if (peek() != Type::map) {
    mismatch("a map");
    return 0;
  }
  return header(0x80, 0xde, 2, "a map", count) ? count : 0;
}

void Reader::skip() {
  for (uint64_t values = 1; values > 0 && ok(); --values) {
    switch (peek()) {
      case Type::nil: nil(); break;
      case Type::boolean: boolean(); break;
      case Type::integer: {
        Integer ignored;
        any_integer("an integer", ignored);
        break;
      }
      case Type::floating: float64(); break;
      case Type::string: string(); break;
      case Type::binary: binary(); break;
      case Type::extension: extension(); break;
      case Type::array: values += array_header(); break;
      case Type::map: values += 2 * uint64_t{map_header()}; break;
      case Type::invalid:
      case Type::end: mismatch("a value"); break;
    }
  }
}

const Attachment* Reader::attachment(uint64_t index) {
  if (failed_) return nullptr;
  if (index >= attachments_.size()) {
    fail("attachment " + std::to_string(index) + " does not exist: the message has " +
         std::to_string(attachments_.size()));
    return nullptr;
  }
  return &attachments_[index];
}

void Reader::finish() {
  if (failed_ || at_ == end_) return;
  value_ = at_;
  fail("expected the end, found " + std::to_string(remaining()) + " bytes more");
}

}  // namespace holdfast::wire
