#include "report.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

namespace holdfast::bench {

namespace {

// A name for a file: one underscore in the place of whatever stands between words.
std::string words_only(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += c;
    } else if (!out.ends_with('_')) {
      out += '_';
    }
  }
  return out;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("cannot write {}", path));
  fmt::print("  written: {}\n", path);
}

}  // namespace

std::string escaped(const std::string& text, bool json) {
  std::string out;
  for (const char c : text) {
    if (json && (c == '"' || c == '\\')) out += '\\';
    if (!json && (c == '<' || c == '&')) {
      out += c == '<' ? "&lt;" : "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string with_spread(const std::vector<double>& values, int digits) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", median(values), digits, *low, digits, *high, digits);
}

void Report::add(const std::string& what, const std::string& unit, const std::vector<double>& rounds, int digits) {
  fmt::print("  {:<68} {}\n", fmt::format("{} ({})", what, unit), with_spread(rounds, digits));
  std::fflush(stdout);
  keep(what, unit, rounds, digits);
}

void Report::keep(const std::string& what, const std::string& unit, const std::vector<double>& rounds, int digits) {
  rows_.push_back({what, unit, rounds, digits});
}

void Report::keep(const Curve& curve) {
  curves_.push_back(curve);
  if (const auto exponent = curve.exponent()) keep(curve.over + ": " + curve.what, "exponent", {*exponent}, 2);
}

void Report::write_files(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  write_file(fmt::format("{}/{}.json", folder, benchmark_), json());
  std::set<std::string> units;
  for (const Row& row : rows_) units.insert(row.unit);
  for (const std::string& unit : units) {
    write_file(fmt::format("{}/{}_{}.svg", folder, benchmark_, words_only(unit)), picture(unit));
  }
  for (const Curve& curve : curves_) {
    write_file(fmt::format("{}/{}_{}.svg", folder, benchmark_, words_only(curve.over + " " + curve.what)),
               curve.picture(benchmark_, system_));
  }
}

std::string Report::json() const {
  std::string out = fmt::format("{{\n  \"benchmark\": \"{}\",\n  \"system\": \"{}\",\n  \"results\": [", benchmark_,
                                escaped(system_, true));
  for (const Row& row : rows_) {
    out += fmt::format("{}\n    {{\"what\": \"{}\", \"unit\": \"{}\", \"median\": {}, \"rounds\": [{}]}}",
                       &row == rows_.data() ? "" : ",", escaped(row.what, true), escaped(row.unit, true),
                       median(row.rounds), fmt::join(row.rounds, ", "));
  }
  out += "\n  ],\n  \"curves\": [";
  for (const Curve& curve : curves_) {
    out += fmt::format("{}\n    {{\"what\": \"{}\", \"unit\": \"{}\", \"over\": \"{}\", \"points\": [",
                       &curve == curves_.data() ? "" : ",", escaped(curve.what, true), escaped(curve.unit, true),
                       escaped(curve.over, true));
    for (const Curve::Point& point : curve.points) {
      out += fmt::format("{}{{\"size\": {}, \"rounds\": [{}]}}", &point == curve.points.data() ? "" : ", ", point.size,
                         fmt::join(point.rounds, ", "));
    }
    out += "]}";
  }
  return out + "\n  ]\n}\n";
}

// A bar for each result as long as its median, and a line over the range of its rounds.
std::string Report::picture(const std::string& unit) const {
  constexpr int kLabels = 420, kBars = 380, kNumbers = 180, kLine = 24, kTop = 54;
  std::vector<const Row*> rows;
  double longest = 0;
  for (const Row& row : rows_) {
    if (row.unit != unit) continue;
    rows.push_back(&row);
    longest = std::max(longest, *std::max_element(row.rounds.begin(), row.rounds.end()));
  }
  // An exponent may be a little below zero.
  const auto length = [&](double value) { return longest > 0 && value > 0 ? value / longest * kBars : 0; };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"10\" y=\"22\" font-size=\"16\">{} ({})</text>\n<text x=\"10\" y=\"42\" fill=\"#666\">{}</text>\n",
      kLabels + kBars + kNumbers, kTop + kLine * static_cast<int>(rows.size()) + 10, escaped(benchmark_, false),
      escaped(unit, false), escaped(system_, false));
  int y = kTop;
  for (const Row* row : rows) {
    const auto [low, high] = std::minmax_element(row->rounds.begin(), row->rounds.end());
    out += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n"
        "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"14\" fill=\"#4a7ebb\"/>\n"
        "<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" stroke=\"#222\" stroke-width=\"2\"/>\n"
        "<text x=\"{:.1f}\" y=\"{}\">{:.{}f}</text>\n",
        kLabels - 8, y + 14, escaped(row->what, false), kLabels, y + 3, length(median(row->rounds)),
        kLabels + length(*low), y + 10, kLabels + length(*high), y + 10, kLabels + length(*high) + 8, y + 14,
        median(row->rounds), row->digits);
    y += kLine;
  }
  return out + "</svg>\n";
}

}  // namespace holdfast::bench
