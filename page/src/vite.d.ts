// What the bundler gives besides modules.
declare module "*.css";
