// The answers of the API, made from its OpenAPI document by tests/serve/test_page_types.py. To write it again:
// STREAMKIT_WRITE=1 python -m pytest tests/serve/test_page_types.py

export interface AlarmView {
  name: string;
  rule: string;
  count: number;
  raised: RaisedAlarm[];
}

export interface ChangedSource {
  uri?: string | null;
  options?: Record<string, any> | null;
}

export interface Credentials {
  token: string;
}

export interface ErrorResponse {
  error: string;
}

export interface EventView {
  number: number;
  time_s: number;
  source: string;
  frame: number;
  pts_s: number;
  kind: string;
  stage: string;
  track_id: number | null;
  data: Record<string, any>;
  image: boolean;
}

export interface HTTPValidationError {
  detail?: ValidationError[];
}

export interface NewSource {
  id: string;
  uri: string;
  options?: Record<string, any>;
}

export interface RaisedAlarm {
  alarm: string;
  source: string;
  since_s: number;
  text: string;
}

export interface Setting {
  name: string;
  value: any;
  help: string;
  schema: Record<string, any>;
}

export interface SourceView {
  id: string;
  address: string;
  options: Record<string, any>;
  kind: string;
  state: string;
  cause: string | null;
  message: string;
  since_s: number;
  frames: number;
  fps: number;
  dropped: Record<string, number>;
  reconnects: Record<string, number>;
  latency: Record<string, number>;
  counts: Record<string, number>;
  packets: boolean;
}

export interface StageView {
  id: string;
  type: string;
  kind: string;
  where: string;
  inputs: string[];
  adds: string[];
  crossings: string[];
  frames: number;
  failed: number;
  us_per_frame: number | null;
  queue: number;
  settings: Setting[];
}

export interface Status {
  version: string;
  device: string;
  ready: boolean;
  stopping: boolean;
  uptime_s: number;
  frames: number;
  detections: Record<string, number>;
  events: Record<string, number>;
  counts: Record<string, number>;
  emits: string[];
  records: string[];
  alarms: RaisedAlarm[];
  last_event: number;
  allow_files: boolean;
}

export interface ValidationError {
  loc: (string | number)[];
  msg: string;
  type: string;
  input?: any;
  ctx?: Record<string, any>;
}
