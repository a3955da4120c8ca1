// The answers of the API, made from its OpenAPI document by tests/serve/test_page_types.py. To write it:
// STREAMKIT_WRITE=1 python -m pytest tests/serve/test_page_types.py

export interface Acknowledgement {
  source: string;
}

export interface AlarmChange {
  number: number;
  time_s: number;
  kind: string;
  alarm: string;
  source: string;
  text: string;
}

export interface AlarmView {
  name: string;
  rule: string;
  words: string;
  count: number;
  raised: RaisedAlarm[];
}

export interface BottleneckView {
  stage: string | null;
  text: string;
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

export interface LogMessage {
  number: number;
  time_s: number;
  level: string;
  place: string;
  text: string;
}

export interface NewSource {
  id: string;
  uri: string;
  options?: Record<string, any>;
}

export interface PipelineProblem {
  severity: "error" | "warning";
  kind: string;
  text: string;
  since_s: number;
  source: string | null;
  stage: string | null;
  link: string;
  acknowledged: boolean;
}

export interface RaisedAlarm {
  alarm: string;
  source: string;
  since_s: number;
  text: string;
  acknowledged: boolean;
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
  fps: number;
  busy: number;
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
  problems: PipelineProblem[];
  bottleneck: BottleneckView;
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
