-- wrk: one POST, over and over; the body is read from a file; the summary is printed as one line of JSON.
function init(args)
  local file = assert(io.open(args[1], "rb"))
  local body = file:read("*a")
  file:close()
  wrk.method = "POST"
  wrk.body = body
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = args[2]
  request_text = wrk.format("POST", nil, wrk.headers, body)
end

function request()
  return request_text
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\nJSON {"requests":%d,"seconds":%.6f,"p50_ms":%.4f,"p99_ms":%.4f,"errors":%d,"bad_status":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.timeout, e.status))
end
