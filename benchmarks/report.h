// Report: the results of one benchmark. Each is printed as soon as it is there; at the end all of them go into files:
// NAME.json with every round, and a picture NAME_UNIT.svg for each unit and NAME_WHAT.svg for each curve.
#pragma once

#include <string>
#include <vector>

#include "curve.h"

namespace holdfast::bench {

double median(std::vector<double> values);
// "1.21 (1.15-1.30)": the median and the range of the rounds.
std::string with_spread(const std::vector<double>& values, int digits);
// For text between quotes in JSON and between tags in SVG.
std::string escaped(const std::string& text, bool json);

class Report {
 public:
  // `system`: what the numbers were measured on.
  Report(std::string benchmark, std::string system) : benchmark_(std::move(benchmark)), system_(std::move(system)) {}

  // One result, from one or more rounds. `unit` is "us", "GB/s", "per second", "ratio" ...
  void add(const std::string& what, const std::string& unit, const std::vector<double>& rounds, int digits);
  // The same, for who prints it in a table of its own.
  void keep(const std::string& what, const std::string& unit, const std::vector<double>& rounds, int digits);
  // A curve, and its exponent as a result.
  void keep(const Curve& curve);

  // Says where they are. Throws std::runtime_error if a file cannot be written.
  void write_files(const std::string& folder) const;

 private:
  struct Row {
    std::string what, unit;
    std::vector<double> rounds;
    int digits;
  };

  std::string json() const;
  std::string picture(const std::string& unit) const;

  const std::string benchmark_, system_;
  std::vector<Row> rows_;
  std::vector<Curve> curves_;
};

}  // namespace holdfast::bench
